"""Runs one target under atheris (libFuzzer, guided by the coverage of our Python code) for a time: `make fuzz`.

The inputs that reach new code are kept in `.fuzz/<target>/`, and the next run continues with them. A failing input is written
beside them and printed; `python -m fuzz.run TARGET --input FILE` tries it again.
"""

import logging
import sys
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stderr
from hashlib import sha256
from io import StringIO
from pathlib import Path
from random import Random

import atheris

# The independent readers count for the coverage, too: msgspec reads in C, where inputs look the same.
_OURS = ["resequencer", "guardian", "storage", "notification_service", "fuzz"]

with redirect_stderr(StringIO()), atheris.instrument_imports(include=_OURS, enable_loader_override=False):
    # It would print each module.
    from fuzz.targets import TARGETS, Target

LONGEST_INPUT = 8_192
_SHARE_OF_OURS = 0.5


def main() -> None:
    arguments = _arguments()
    # Refusals are logged, and here there are thousands of them per second.
    logging.disable(logging.CRITICAL)
    target = TARGETS[arguments.target]
    if arguments.input:
        target.check(arguments.input.read_bytes())
        return
    directory = arguments.directory / arguments.target
    corpus = directory / "corpus"
    _write_seeds(target, corpus)
    _write_dictionary(target, directory / "tokens")
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={arguments.seconds}",
            f"-max_len={LONGEST_INPUT}",
            f"-artifact_prefix={directory}/",
            f"-dict={directory / 'tokens'}",
            *("-timeout=300", "-rss_limit_mb=2048", "-print_final_stats=1", f"-verbosity={0 if arguments.quiet else 1}"),
            str(corpus),
        ],
        target.check,
        custom_mutator=_mutator(target),
    )
    atheris.Fuzz()


def _arguments() -> Namespace:
    parser = ArgumentParser(description="Runs one target for a time, or one input again.")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60, help="default: %(default)s")
    parser.add_argument("--input", type=Path, help="try this one only")
    parser.add_argument("--directory", type=Path, default=Path(".fuzz"), help="default: %(default)s")
    parser.add_argument("--quiet", action="store_true", help="say nothing of what is new on the way")
    return parser.parse_args()


def _write_seeds(target: Target, corpus: Path) -> None:
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / sha256(seed).hexdigest()[:16]).write_bytes(seed)


def _write_dictionary(target: Target, file: Path) -> None:
    quoted = ("".join(f"\\x{byte:02x}" for byte in token) for token in target.tokens)
    file.write_text("".join(f'"{token}"\n' for token in quoted), encoding="ascii")


def _mutator(target: Target):  # type: ignore[no-untyped-def]
    """Half of the changes are ours, which know the shape of an input; the others are libFuzzer's, which know its coverage."""
    seeds = target.seeds()

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = Random(seed)
        if rng.random() >= _SHARE_OF_OURS:
            return bytes(atheris.Mutate(data, most))
        return target.mutate(rng, data, seeds, target.tokens)[:most]

    return mutate


if __name__ == "__main__":
    main()
