"""One kind of error for everything a user can put right: one line, what to change, exit code 2.

Faults of an environment are another kind: nothing in the command line is wrong, the task is.
"""

from collections.abc import Iterable, Iterator
import contextlib
import difflib
import errno
import math
from os import PathLike


class UsageError(Exception):
    """Input that cannot be used. The message is one line and says what to change."""


class EnvironmentFault(RuntimeError):
    """An environment that broke its promise while running. The message names it, the step and the field."""


class Diverged(RuntimeError):
    """A training whose numbers are no longer finite. The message names the seed and what may help."""


class CannotWrite(UsageError):
    """A disk that is full, read-only or otherwise refuses. A training may go on and try again later."""


class CheckpointError(UsageError):
    """A checkpoint that is damaged, incomplete, unsafe to read or made for another configuration."""


class WithoutReplay(CheckpointError):
    """A whole checkpoint that can act but not be trained on."""


def require_at_least(low: float, **options: float) -> None:
    """Refuses numbers that are too small or not finite, by the name of their option."""
    for name, value in options.items():
        if not low <= value < math.inf:  # also refuses NaN
            raise UsageError(f"--{name.replace('_', '-')} must be at least {low:g}, not {shown(value)}")


def shown(number: float | int) -> str:
    """A number for a message; of one that no float can be, its sign and size."""
    try:
        return f"{number:g}"
    except OverflowError:
        return f"{'-' * (number < 0)}2^{int(number).bit_length() - 1}"


def one_line(text: str, most: int = 1000) -> str:
    """The text without line breaks, control characters and halves of signs, cut to so many characters."""
    plain = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * most])
    plain = " ".join(plain.split())
    return plain if len(plain) <= most and len(text) <= 4 * most else f"{plain[:most]} ..."


OTHER_WORDS = {
    **dict.fromkeys(("env", "env_id", "env_name", "environment", "gym_id"), "task"),
    **dict.fromkeys(("total_timesteps", "timesteps", "total_steps", "max_steps", "frames", "num_steps"), "steps"),
    **dict.fromkeys(("n_envs", "num_envs", "nenvs"), "envs"),
    **dict.fromkeys(("n_seeds", "num_seeds"), "seeds"),
    **dict.fromkeys(("algo", "algorithm", "agent", "model"), "recipe"),
    **dict.fromkeys(("lr", "learningrate"), "learning_rate"),
    **dict.fromkeys(("buffer_size", "replay_size", "memory"), "replay"),
    **dict.fromkeys(("learning_starts", "start_steps", "exploration_steps"), "warmup"),
    **dict.fromkeys(("logdir", "log_dir", "output", "save_dir", "dir", "output_dir"), "out"),
    **dict.fromkeys(("eval_freq", "eval_interval"), "eval_every"),
    **dict.fromkeys(("n_eval_episodes", "num_eval_episodes"), "eval_episodes"),
    **dict.fromkeys(("frame_skip", "frameskip"), "action_repeat"),
    **dict.fromkeys(("gamma", "discount_factor"), "discount"),
    **dict.fromkeys(("utd", "gradient_steps"), "critic_steps"),
    **dict.fromkeys(("logger", "tracker", "track"), "log"),
    **dict.fromkeys(("polyak", "rho"), "tau"),
    **dict.fromkeys(("wandb", "trackio"), "log"),
    **dict.fromkeys(("n_workers", "num_workers", "workers"), "env_processes"),
}
"""What other libraries call our options."""

TENSORBOARD = "; every run writes its rows for TensorBoard, too: tensorboard --logdir runs"
DEVICE = "; JAX chooses the device: set JAX_PLATFORMS=cpu or JAX_PLATFORMS=cuda before the command"


def option_hint(name: str, options: Iterable[str]) -> str:
    """The part of a message about an unknown option: ours for the word of another library, or the closest.

    The names have underscores. Only what is close is named: a wrong hint is worse than none.
    """
    options = list(options)
    if name in ("device", "gpu", "cuda", "cpu", "no_cuda", "platform"):
        return DEVICE
    if name.startswith(("tensorboard", "tb_log")):
        return TENSORBOARD
    if (ours := OTHER_WORDS.get(name)) in options:
        return f"; did you mean {ours}?"
    return did_you_mean(name, options, cutoff=0.66)


def did_you_mean(name: str, options: Iterable[str], cutoff: float = 0.5) -> str:
    """The part of a message that names the closest known option, or nothing where none is close."""
    options = list(options)
    folded = {option.casefold(): option for option in options}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=cutoff)
    return f"; did you mean {folded[close[0]]}?" if close else ""


def listed(options: Iterable[str], most: int = 5) -> str:
    """The part of a message that says what there is, for a name that resembles none of it."""
    options = sorted(options)
    return f"; it has {', '.join(options[:most])}{' and others' * (len(options) > most)}" if options else ""


_WRITE_ADVICE = {
    errno.ENOSPC: "free some space or choose another --out",
    errno.EDQUOT: "free some space or choose another --out",
    errno.EFBIG: "raise the file size limit (ulimit -f) or choose another --out",
    errno.EROFS: "make it writable or choose another --out",
    errno.EACCES: "make it writable or choose another --out",
    errno.EPERM: "make it writable or choose another --out",
    errno.ENOTDIR: "move what is in the way or choose another --out",
    errno.EEXIST: "move what is in the way or choose another --out",
}


def cannot_write(what: str, path: str | PathLike, error: OSError) -> CannotWrite:
    """The error for a failed write: what was being written, where, why, and what to change."""
    advice = _WRITE_ADVICE.get(error.errno, "choose another --out")
    return CannotWrite(f"cannot write {what} to {path}: {error.strerror or error}; {advice}")


@contextlib.contextmanager
def writing(what: str, path: str | PathLike) -> Iterator[None]:
    """A block that writes: where it fails, the error of one line follows."""
    try:
        yield
    except OSError as error:
        raise cannot_write(what, path, error) from error
