"""How it looks when the other side of a connection does not answer: the one definition, for every client."""

import aiohttp

# A timeout is an OSError. A connection that the other side closed before it answered is not, in aiohttp.
NO_ANSWER = (aiohttp.ClientError, OSError)


def describe_no_answer(error: BaseException) -> str:
    """Many of these errors carry no text of their own."""
    name, text = type(error).__name__, str(error)
    return f"{name}: {text}" if text else name
