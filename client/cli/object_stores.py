"""The flags of verbs that read or write an object store."""

import argparse

from ..objects import places
from ..objects.store import ObjectStore
from .parser import Parser, age_s


def address_arguments(parser: Parser) -> None:
    """Add the flags that say where a store in S3 is."""
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="address of an S3-compatible store (default: AWS_ENDPOINT_URL_S3, "
        "AWS_ENDPOINT_URL, the files of AWS, then AWS itself)",
    )
    parser.add_argument(
        "--region",
        metavar="REGION",
        help="region of the bucket (default: AWS_REGION, AWS_DEFAULT_REGION, the "
        "files of AWS, then us-east-1)",
    )


def arguments(parser: Parser) -> None:
    """Add the flags that `opened` uses."""
    address_arguments(parser)
    parser.add_argument("--store-timeout", type=_patience, metavar="AGE",
                        help="time limit of one request to S3 with its repetitions "
                             "(default 90s)")  # fmt: skip


def opened(place: str, options: argparse.Namespace) -> ObjectStore:
    """Return the store at a place, a directory or s3://BUCKET/PREFIX. Raises InvalidArgument."""
    return places.opened(
        place, endpoint=options.endpoint, region=options.region, patience_s=options.store_timeout
    )


def _patience(text: str) -> float:
    """Return an age of at least a second, in seconds."""
    found = age_s(text)
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is below a second; give 1s or more")
    return found
