"""Requests and answers: paths, bodies, lists, watches, tables, discovery."""
