"""Millions of points, drawn as the pixels that they cover."""

from collections.abc import Iterable, Sequence

from .kit import n


def dots(points: Iterable[tuple[float, float]], size: float = 1.0) -> str:
    """Return the steps of a path with round caps that covers what all points together cover.

    A column of `size` units becomes vertical strokes, one for each run of neighbouring rows that
    hold a point: the highest and the lowest point of a column, and every gap, stay.
    """
    columns: dict[int, set[int]] = {}
    for x, y in points:
        columns.setdefault(int(x / size), set()).add(int(y / size))
    parts = []
    for column in sorted(columns):
        for low, high in _runs(sorted(columns[column])):
            parts.append(
                f"M{n((column + 0.5) * size)} {n((low + 0.5) * size)}v{n((high - low) * size)}"
            )
    return "".join(parts)


def _runs(rows: Sequence[int]) -> Iterable[tuple[int, int]]:
    first = last = rows[0]
    for row in rows[1:]:
        if row > last + 1:
            yield first, last
            first = row
        last = row
    yield first, last


def extremes(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the first, lowest, highest and last point of a line in each column of one unit."""
    kept: list[tuple[float, float]] = []
    column: list[tuple[float, float]] = []
    for point in points:
        if column and int(point[0]) != int(column[0][0]):
            kept += _corners(column)
            column = []
        column.append(point)
    return kept + _corners(column)


def _corners(column: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(column) <= 4:
        return list(column)
    order = range(len(column))
    low = min(order, key=lambda i: column[i][1])
    high = max(order, key=lambda i: column[i][1])
    return [column[i] for i in sorted({0, low, high, len(column) - 1})]
