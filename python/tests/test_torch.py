"""Tensors of the real torch (scripts/install-deps torch); test_objects.py has what runs without."""
import importlib.util
import os

import pytest

import manta

pytestmark = [pytest.mark.skipif(importlib.util.find_spec("torch") is None,
                                 reason="torch is not installed: scripts/install-deps torch"),
              pytest.mark.usefixtures("loaded", "cluster")]
torch = None


@pytest.fixture(scope="module")
def loaded():
    """Loaded here, not when tests are collected: the workers of all clusters that start later load it, too."""
    global torch
    torch = importlib.import_module("torch")


def mapping_of(address):
    """The permissions of the memory there, as the kernel lists them, and what it is."""
    with open("/proc/self/maps") as file:
        for line in file:
            words = line.split()
            low, high = (int(word, 16) for word in words[0].split("-"))
            if low <= address < high:
                return words[1], "memfd" in line or "deleted" in line
    raise AssertionError("the address is not mapped")


def test_a_tensor_is_read_in_place_and_read_only():
    tensor = torch.arange(1_000_000, dtype=torch.float32).reshape(1000, 1000)
    ref = manta.put(tensor)
    one, two = manta.get([ref, ref])
    assert torch.equal(one, tensor) and one.dtype == tensor.dtype and one.shape == tensor.shape
    # Both look at the store; not even the process that put it there can write to it.
    assert mapping_of(one.data_ptr()) == mapping_of(two.data_ptr()) == ("r--s", True)
    del one, ref
    assert torch.equal(two, tensor)

    @manta.remote
    def look(tensor, inside):
        return mapping_of(tensor.data_ptr()), mapping_of(inside["x"][0].data_ptr()), float(tensor[999, 999])

    where, inner, last = manta.get(look.remote(manta.put(tensor), {"x": [tensor]}), timeout=200)
    assert where == inner == ("r--s", True) and last == 999_999


def test_writing_needs_a_clone(tmp_path):
    ref = manta.put(torch.zeros(100_000))

    @manta.remote(max_retries=0)
    def write(tensor, clone):
        tensor = tensor.clone() if clone else tensor
        tensor[0] = 5
        return float(tensor[0])

    assert manta.get(write.remote(ref, True), timeout=200) == 5
    with pytest.raises(manta.exceptions.WorkerCrashedError, match="SIGSEGV"):
        manta.get(write.remote(ref, False), timeout=200)
    assert float(manta.get(ref)[0]) == 0


def test_kinds_of_tensors():
    base = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    values = {
        "bfloat16": base.to(torch.bfloat16), "half": base.half(), "bool": base > 3, "int8": base.to(torch.int8),
        "complex": torch.complex(base, -base), "conj": torch.complex(base, -base).conj(),
        "transposed": base.t(), "strided": base[::2, 1::2], "scalar": torch.tensor(3.5), "empty": torch.empty(0, 3),
        "sparse": torch.eye(3).to_sparse(), "parameter": torch.nn.Parameter(torch.ones(3)),
    }
    back = manta.get(manta.put(values))
    for name, tensor in values.items():
        assert back[name].dtype == tensor.dtype and back[name].shape == tensor.shape, name
        both = [item.to_dense() if item.is_sparse else item for item in (back[name], tensor)]
        assert torch.equal(both[0].detach(), both[1].detach()), name
    assert back["parameter"].requires_grad and not back["half"].requires_grad


def test_a_module_travels_and_is_trained_where_it_is():
    torch.manual_seed(1)
    model = torch.nn.Linear(64, 64)
    batch = torch.randn(32, 64)

    @manta.remote
    def forward(model, batch):
        return model(batch)

    @manta.remote
    class Trainer:
        def __init__(self, model):
            import copy

            self.model = copy.deepcopy(model)  # its own, to be written to

        def step(self, batch):
            loss = self.model(batch).pow(2).mean()
            loss.backward()
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
            return float(loss)

    ref = manta.put(model)
    out = manta.get(forward.remote(ref, batch), timeout=200)
    assert torch.allclose(out, model(batch), atol=1e-5)
    trainer = Trainer.remote(ref)
    losses = manta.get([trainer.step.remote(batch) for _ in range(5)], timeout=200)
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]


def test_workers_have_torch_from_the_start():
    @manta.remote
    def loaded():
        import sys

        return "torch" in sys.modules, len(os.listdir(f"/proc/{os.getppid()}/task"))

    assert manta.get(loaded.remote(), timeout=200) == (True, 1)  # forks of an interpreter without threads
