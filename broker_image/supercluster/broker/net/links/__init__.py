"""Links between brokers: who dials whom, what both say of themselves, and what goes over them."""
