"""gRPC statuses become failures of the right class. The calls are real ones, to a server in this process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from dgr.v1 import common_pb2, worker_pb2, worker_pb2_grpc

from dgrctl.errors import AdmissionError, DgrError, InputError, LockedError, StageError
from dgrctl.runtime.client import WorkerClient
from dgrctl.runtime.statuses import REMEDY_KEY, STAGE_ERROR_KEY, Failure, to_error


class Failing(worker_pb2_grpc.WorkerServicer):
    """Fails every generation as it is told to."""

    code = grpc.StatusCode.OK
    metadata: tuple[tuple[str, str | bytes], ...] = ()

    def Generate(  # noqa: N802 - the name is the contract's
        self, request: worker_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[worker_pb2.GenerateResponse]:
        del request
        yield worker_pb2.GenerateResponse()
        context.set_trailing_metadata(self.metadata)
        context.abort(self.code, "the words of the worker")


@pytest.fixture
def failing() -> Iterator[tuple[Failing, WorkerClient]]:
    servicer = Failing()  # type: ignore[abstract]
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    worker_pb2_grpc.add_WorkerServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with WorkerClient(f"127.0.0.1:{port}", "stage 0 (layers 0:15)") as client:
            yield servicer, client
    finally:
        server.stop(None).wait()


def failure(client: WorkerClient) -> DgrError:
    with pytest.raises(DgrError) as caught:
        list(client.generate(worker_pb2.GenerateRequest()))
    return caught.value


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InputError, "refuses"),
        (grpc.StatusCode.FAILED_PRECONDITION, InputError, "refuses"),
        (grpc.StatusCode.PERMISSION_DENIED, InputError, "refuses"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, AdmissionError, "refuses"),
        (grpc.StatusCode.INTERNAL, StageError, "failed"),
        (grpc.StatusCode.UNKNOWN, StageError, "failed"),
        (grpc.StatusCode.DATA_LOSS, StageError, "failed"),
        (grpc.StatusCode.UNAVAILABLE, StageError, "cannot be reached"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, StageError, "cannot be reached"),
    ],
)
def test_each_status_has_its_class(
    failing: tuple[Failing, WorkerClient], code: grpc.StatusCode, kind: type[DgrError], words: str
) -> None:
    servicer, client = failing
    servicer.code = code
    error = failure(client)
    assert type(error) is kind
    assert error.what == f"stage 0 (layers 0:15) {words}: the words of the worker"
    assert error.where == client.address
    assert error.remedy


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("another process held the compute gate /x/compute.gate for 3 s", LockedError),
        ("a larger epoch of this session took over", StageError),
    ],
)
def test_a_turn_that_never_came_is_told_from_other_aborted_calls(message: str, kind: type[DgrError]) -> None:
    error = to_error(Failure(grpc.StatusCode.ABORTED, message, None), title="stage 1 (layers 15:30)", address="127.0.0.1:1")
    assert type(error) is kind
    assert message in error.what


def test_a_bound_is_not_answered_with_waiting_alone(failing: tuple[Failing, WorkerClient]) -> None:
    servicer, client = failing
    servicer.code = grpc.StatusCode.RESOURCE_EXHAUSTED
    remedy = failure(client).remedy or ""
    assert remedy.startswith("shorten the prompt or lower --max-tokens if the bound is per session")


def test_the_worker_says_what_to_do(failing: tuple[Failing, WorkerClient]) -> None:
    servicer, client = failing
    servicer.code = grpc.StatusCode.RESOURCE_EXHAUSTED
    servicer.metadata = ((REMEDY_KEY, "shorten the prompt"),)
    assert failure(client).remedy == "shorten the prompt"


def test_the_detail_names_the_stage_that_failed(failing: tuple[Failing, WorkerClient]) -> None:
    servicer, client = failing
    layers = common_pb2.LayerRange(begin=15, end=30)
    detail = common_pb2.StageError(stage_index=1, range=layers, address="10.0.0.2:7001", code=14, message="it is gone")
    servicer.code = grpc.StatusCode.UNAVAILABLE
    servicer.metadata = ((STAGE_ERROR_KEY, detail.SerializeToString()),)
    error = failure(client)
    assert error.what == "stage 1 (layers 15:30) cannot be reached: it is gone"
    assert error.where == "10.0.0.2:7001"


def test_a_detail_that_is_none_is_ignored(failing: tuple[Failing, WorkerClient]) -> None:
    servicer, client = failing
    servicer.code = grpc.StatusCode.INTERNAL
    servicer.metadata = ((STAGE_ERROR_KEY, b"\xff\xff\xff"),)
    assert failure(client).what == "stage 0 (layers 0:15) failed: the words of the worker"


def test_something_that_is_no_worker(failing: tuple[Failing, WorkerClient]) -> None:
    _, client = failing
    with pytest.raises(InputError, match="refuses"):
        client.describe()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
    with WorkerClient(address, "stage 0") as client, pytest.raises(StageError, match="stage 0 cannot be reached") as caught:
        client.describe()
    assert caught.value.where == address


def test_somebody_listens_and_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with WorkerClient(address, "stage 0") as client, pytest.raises(StageError, match="stage 0 cannot be reached") as caught:
            client.describe()
    assert "Deadline Exceeded" not in caught.value.what


def test_a_cancelled_stream_ends_with_an_error_in_the_thread_that_reads_it(failing: tuple[Failing, WorkerClient]) -> None:
    servicer, client = failing
    servicer.code = grpc.StatusCode.INTERNAL
    stream = client.generate(worker_pb2.GenerateRequest())
    stream.cancel()
    with pytest.raises(StageError):
        list(stream)
