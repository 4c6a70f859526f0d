"""The code of the commands. `Command.run` in ``logpipeline_cli.arguments`` names the function of
each: ``run`` in the module of its name, or, where commands share a module, a function of its name.
"""
