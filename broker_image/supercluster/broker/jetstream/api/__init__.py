"""The JetStream API's requests and answers: parsed, judged by their form, encoded."""
