// Many files include this and use nothing of it. What needs __half meets a name that is not declared, see unsupported.py.
