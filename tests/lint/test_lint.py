"""The tree passes its own checks."""
import lint


def test_file_heads():
    assert list(lint.file_heads()) == []


def test_walls_between_rooms():
    assert list(lint.walls()) == []


def test_paths_in_documents_exist():
    assert list(lint.document_paths()) == []


def test_no_machine_paths():
    assert list(lint.machine_words()) == []
