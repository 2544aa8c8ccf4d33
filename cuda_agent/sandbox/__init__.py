"""Running untrusted code: a fork server for Python children and a bubblewrap shell for an agent's commands."""
