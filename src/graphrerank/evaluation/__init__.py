"""The one judge: systems give rankings and costs, and a study measures, tests and explains them."""
