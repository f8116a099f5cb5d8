"""The report as one HTML file: tables that sort, plots, light and dark, and nothing from outside."""

from graphrerank.evaluation.html.page import render_html

__all__ = ["render_html"]
