"""The history of a run: one row a round, queried like a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ilk.errors import IlkError, unknown

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]


class History(Sequence[Row]):
    """Rows in the order of rounds.

    ``history[-1]`` is a row, ``history["accuracy"]`` a column, ``history[-5:, ("round", "accuracy")]`` a part;
    ``history.to_pandas()`` the whole as a DataFrame.
    """

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.rows = list(rows)

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    @overload
    def __getitem__(self, key: slice) -> History: ...
    @overload
    def __getitem__(self, key: tuple[int | slice, str | Sequence[str]]) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        """Return a row, a column, or a part of the table."""
        if isinstance(key, tuple):
            rows, columns = key
            part: Any = self[rows]
            if isinstance(columns, str):
                return part[columns]
            chosen = [{c: row.get(c) for c in columns} for row in ([part] if isinstance(rows, int) else part.rows)]
            return chosen[0] if isinstance(rows, int) else chosen
        if isinstance(key, slice):
            return History(self.rows[key])
        if isinstance(key, int):
            return self.rows[key]
        if key not in self.columns:
            raise unknown("column", str(key), self.columns)
        return [row.get(key) for row in self.rows]

    def to_pandas(self) -> pd.DataFrame:
        """Return the history as a pandas DataFrame, a row a round (needs the extra ``ilk[pandas]``)."""
        try:
            import pandas as pd
        except ImportError:
            raise IlkError("to_pandas() needs pandas: pip install 'ilk[pandas]'.") from None
        return pd.DataFrame(self.rows)
