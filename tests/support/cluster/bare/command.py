"""The command line: the verbs of `kind` that pytest-kind uses, and a few of our own."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster.bare import binaries, buildah, containers, creation, images, requirements, state
from cluster.bare.places import NODES, PROJECT, ClusterPlaces, cache
from cluster.bare.running import ToolError, say

DESCRIPTION = """\
A real Kubernetes as plain processes, for a Linux machine without Docker. It takes those commands of
kind that tests need. The first `create` builds Kubernetes from its Go modules, for some minutes."""
NAME = "kind"  # kind's own default


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what *arguments* say; 1 with a sentence when that cannot be done."""
    options = _parser().parse_args(arguments)
    try:
        COMMANDS[options.verb, options.noun](options)
    except ToolError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def build(_: argparse.Namespace) -> None:
    """Build Kubernetes and the images that clusters begin with."""
    requirements.check()
    print(binaries.build())
    images.pause()
    images.workload()


def build_api(_: argparse.Namespace) -> None:
    """Build what a cluster without nodes runs, and kubectl; `build all` then builds the others."""
    requirements.check(has_nodes=False)
    print(binaries.build(binaries.API))


def build_images(options: argparse.Namespace) -> None:
    """Build the project's images, but that of tables, and print their names, and the archive that
    holds them.
    """
    requirements.check()
    _print_built(images.project(options.source))


def build_table_image(options: argparse.Namespace) -> None:
    """Build the image of tables, which is larger than all others together, and print the same."""
    requirements.check()
    _print_built(images.project(options.source, images.SPARK_TARGETS))


def _print_built(built: images.Images) -> None:
    print(json.dumps({"archive": str(built.archive), "images": built.names}, indent=2))


def create_cluster(options: argparse.Namespace) -> None:
    """Make a cluster; its kubeconfig comes to the file that is named."""
    at = creation.create(options.name, _nodes(options))
    if options.kubeconfig:
        options.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(at.kubeconfig, options.kubeconfig)
    say(f"{options.name} is up: export KUBECONFIG={options.kubeconfig or at.kubeconfig}")


def delete_cluster(options: argparse.Namespace) -> None:
    """End a cluster; it is no error when there is none."""
    creation.delete(options.name)


def get_clusters(_: argparse.Namespace) -> None:
    """Print the names of the clusters that are up."""
    for record in creation.usable():
        print(record.name)


def get_nodes(options: argparse.Namespace) -> None:
    """Print the names of a cluster's nodes."""
    print("\n".join(_record(options).nodes))


def get_kubeconfig(options: argparse.Namespace) -> None:
    """Print a cluster's kubeconfig."""
    print(_places(options).kubeconfig.read_text())


def get_folder(options: argparse.Namespace) -> None:
    """Print where a cluster stands: audit.log, and of each node its log/, lib/ and processes/."""
    print(_places(options).folder)


def get_binaries(_: argparse.Namespace) -> None:
    """Print the folder of kubectl and helm."""
    print(binaries.build())


def get_helm(_: argparse.Namespace) -> None:
    """Print the path of helm if it is built, else its name; nothing is built."""
    print("helm" if binaries.missing(["helm"]) else binaries.folder() / "helm")


def get_packages(_: argparse.Namespace) -> None:
    """Print the Debian packages that a cluster needs."""
    print("\n".join(requirements.packages()))


def load_archive(options: argparse.Namespace) -> None:
    """Bring all images of an archive to all nodes."""
    containers.load_everywhere(_places(options), _record(options).nodes, options.image)


def load_image(options: argparse.Namespace) -> None:
    """Bring an image that `build images` made to all nodes."""
    archive = cache() / "images" / "one.tar"
    buildah.pack([str(options.image)], archive)
    containers.load_everywhere(_places(options), _record(options).nodes, archive)


COMMANDS: dict[tuple[str, str], Callable[[argparse.Namespace], None]] = {
    ("build", "all"): build,
    ("build", "api"): build_api,
    ("build", "images"): build_images,
    ("build", "table-image"): build_table_image,
    ("create", "cluster"): create_cluster,
    ("delete", "cluster"): delete_cluster,
    ("get", "binaries"): get_binaries,
    ("get", "clusters"): get_clusters,
    ("get", "folder"): get_folder,
    ("get", "helm"): get_helm,
    ("get", "kubeconfig"): get_kubeconfig,
    ("get", "nodes"): get_nodes,
    ("get", "packages"): get_packages,
    ("load", "docker-image"): load_image,
    ("load", "image-archive"): load_archive,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("kind", description=DESCRIPTION)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    nouns = {
        verb: verbs.add_parser(verb).add_subparsers(dest="noun", metavar="NOUN", required=True)
        for verb in dict.fromkeys(verb for verb, _ in COMMANDS)
    }
    for (verb, noun), command in COMMANDS.items():
        sub = nouns[verb].add_parser(noun, help=command.__doc__, description=command.__doc__)
        sub.add_argument("--name", default=NAME, help=f"of the cluster (default: {NAME})")
        sub.add_argument("--kubeconfig", type=Path, help="where to write it")
        if verb == "load":
            sub.add_argument("image", type=Path)
        if command in (build_images, build_table_image):
            sub.add_argument("--source", type=Path, default=PROJECT)
        if command is create_cluster:
            sub.add_argument("--config", type=Path, help="kind's, in JSON: how many nodes")
            sub.add_argument(
                "--nodes",
                type=int,
                default=len(NODES),
                help="how many; 0: the API alone, without root",
            )
    return parser


def _nodes(options: argparse.Namespace) -> tuple[str, ...]:
    count = options.nodes
    if options.config:
        try:
            count = len(json.loads(options.config.read_text())["nodes"])
        except (ValueError, KeyError) as error:
            raise ToolError(f"{options.config}: want JSON with a list of nodes") from error
    return tuple(f"node-{number}" for number in range(1, count + 1))


def _record(options: argparse.Namespace) -> state.Record:
    record = state.read(options.name)
    if record is None or not creation.is_usable(record):
        raise ToolError(f"no cluster named {options.name} is up: see `kind get clusters`")
    return record


def _places(options: argparse.Namespace) -> ClusterPlaces:
    return ClusterPlaces(_record(options).name)
