"""The pages of docs/results, made from the result files alone: one module a page.

A page's module has `TITLE`, `page(evidence)`, its Markdown, and `figures(evidence)`, its figures by file name, where
`evidence` are the result files by recipe name (`reproduction.result_files.recorded`).
"""
