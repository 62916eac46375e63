import sys

from dgrctl.cli.main import main

sys.exit(main())
