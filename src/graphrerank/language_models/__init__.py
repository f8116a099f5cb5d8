"""Language models: clients, a cache of answers, and the tasks that they perform."""
