import pytest

from graphrerank.language_models.questions import parse_question, write_questions


def test_a_question_for_each_group_of_passages(scripted_model):
    def reply(system, question):
        assert "nobody who misses one of them" in system
        return "no JSON" if "odd" in question else {"question": f" {question}  and?"}

    model = scripted_model(reply)
    assert write_questions(model, [["a", "b"], ["odd"]], tries=2) == ["- a - b and?", None]
    assert len(model.asked) == 3  # the second one again


@pytest.mark.parametrize("bad", ["[]", '{"question": " "}', '{"question": 3}', '{"question": "a", "more": 1}'])
def test_answers_of_another_form_are_refused(bad):
    with pytest.raises(ValueError, match="the answer must be"):
        parse_question(bad)
