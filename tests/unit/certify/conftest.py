import dgrctl.certify  # noqa: F401 - puts the generated contract on the path for the modules here
