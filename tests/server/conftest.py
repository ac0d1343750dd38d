import pytest

from mindnano.checkpoint import tiny

from .running import Live, ScriptedLLM


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.mn"
    tiny.build(path, seed=5)
    return path


@pytest.fixture(scope="session")
def llm(model):
    with ScriptedLLM(model, context=2048, slots=4, cache_budget=64 << 20) as engine:
        yield engine


@pytest.fixture(scope="session")
def live(llm, tmp_path_factory):
    server = Live(llm, aliases=("other-name",), session_dir=tmp_path_factory.mktemp("sessions"))
    yield server
    server.stop()


@pytest.fixture
def client(live):
    with live.client() as client:
        yield client


@pytest.fixture
def says(llm):
    """Set what the model says in the following requests."""

    def say(text):
        llm.script = text

    yield say
    llm.script = None


@pytest.fixture
def ask(client):
    """Ask for a chat completion; the parsed body of a 200."""

    def ask(**body):
        response = client.post("/v1/chat/completions", json={"max_tokens": 256} | body)
        assert response.status_code == 200, response.text
        return response.json()

    return ask
