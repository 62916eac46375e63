"""``dgrctl bench``: the split against the whole model, and the cost of one hop."""

from __future__ import annotations

from typing import Annotated

import typer

from dgrctl.cli.options import Json, Wide, complete_recipes, examples
from dgrctl.layout import Layout

app = typer.Typer(add_completion=False)


@app.command(epilog=examples("dgrctl bench", "dgrctl bench --threads 2 --pairs 15 --json"))
def bench(
    recipes: Annotated[
        tuple[str, str],
        typer.Option(
            "--recipes", metavar="TWO THREE", help="A recipe, and one with a stage more.", autocompletion=complete_recipes
        ),
    ] = ("smollm2-135m.cpu-2stage", "smollm2-135m.cpu-3stage"),
    threads: Annotated[
        list[int] | None,
        typer.Option(
            "--threads", metavar="N", min=1, help="Threads of each stage. The option can be repeated. Default: 1 and 2."
        ),
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", metavar="N", min=1, help="Pairs that count.")] = 7,
    warmup: Annotated[int, typer.Option("--warmup", metavar="N", min=0, help="Pairs that run first and do not count.")] = 1,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", metavar="N", min=1, help="Tokens of the prompt.")] = 256,
    generate_tokens: Annotated[int, typer.Option("--generate-tokens", metavar="N", min=2, help="Tokens of the answer.")] = 64,
    decode_slice_tokens: Annotated[
        int,
        typer.Option(
            "--decode-slice-tokens",
            metavar="N",
            min=0,
            help="Tokens that one side decodes before the other's turn. 0: all of them.",
        ),
    ] = 8,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Measure the split against the whole model, and the cost of one hop.

    Only the ratios mean anything. The goal is what the newest lock demands. This signs nothing. .dgr/bench keeps every sample.
    """
    from dgrctl.bench import measure, summary
    from dgrctl.console import emit_json, note

    layout = Layout.find()
    plan = measure.Plan(
        recipes=recipes,
        threads=tuple(threads or (1, 2)),
        pairs=pairs,
        warmup=warmup,
        prompt_tokens=prompt_tokens,
        generate_tokens=generate_tokens,
        decode_slice_tokens=decode_slice_tokens,
    )
    report = measure.run(layout, plan)
    raw = measure.write(layout, report)
    if as_json:
        emit_json(summary.as_dict(report, raw))
    else:
        summary.show(report, wide=wide)
    note(f"raw samples: {raw}")
    return 0
