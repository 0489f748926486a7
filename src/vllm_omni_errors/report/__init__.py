# SPDX-License-Identifier: Apache-2.0
"""Reports for people: `text` for the terminal, `html` for a page. Both take a report or its JSON."""
