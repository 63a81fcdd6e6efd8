"""An object store in memory, without faults."""

from collections.abc import Iterator, Mapping

from ...client.objects.store import Listed, ObjectStore, check_range


class MemoryStore(ObjectStore):
    """The objects of a mapping, which the store copies."""

    def __init__(self, contents: Mapping[str, bytes] | None = None) -> None:
        self.place = "memory"
        self.contents = dict(contents or {})

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        if name in self.contents and not replace:
            return False
        self.contents[name] = content
        return True

    def get(self, name: str, bytes_max: int) -> bytes | None:
        found = self.contents.get(name)
        if found is not None and len(found) > bytes_max:
            raise self.too_large(name, bytes_max)
        return found

    def get_range(self, name: str, begin: int, end: int) -> bytes | None:
        check_range(begin, end)
        found = self.contents.get(name)
        if found is not None and len(found) < end:
            raise self.too_short(name, end)
        return None if found is None else found[begin:end]

    def objects(self, folder: str = "") -> Iterator[Listed]:
        for name, content in sorted(self.contents.items()):
            if name.startswith(f"{folder}/" if folder else ""):
                yield Listed(name, len(content))

    def delete(self, name: str) -> None:
        self.contents.pop(name, None)
