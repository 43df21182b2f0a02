"""Build the compiled kernels. Where they cannot be built the installation goes on without them, and PyTorch is used."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNEL = "src/ilk/native/kernel"
X86 = platform.machine().lower() in ("x86_64", "amd64")
SETS = {  # what each kernel's file is compiled with; which one runs is chosen at run time
    "avx512.cpp": ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mfma"],
    "avx2.cpp": ["-mavx2", "-mfma"],
    "baseline.cpp": [],
    "binding.cpp": [],
}
FLAGS = [
    *("-std=c++17", "-O3", "-g0", "-fvisibility=hidden", "-Wno-psabi"),
    *("-ffp-contract=fast", "-fno-math-errno"),  # a product and a sum may be one instruction; but NaN stays NaN
    *("-fno-predictive-commoning", "-fno-tree-vectorize"),  # vectors are written out; GCC's own come in their way
]


class Build(build_ext):
    """Compile each file with its own instruction set, and take a failure lightly."""

    def build_extension(self, ext: Extension) -> None:
        """Build, or say in one line that it did not work."""
        try:
            import pybind11

            ext.include_dirs.append(pybind11.get_include())
            compile_one = self.compiler._compile

            def with_its_set(obj: str, src: str, extension: str, cc_args: Any, postargs: Any, pp_opts: Any) -> None:
                compile_one(obj, src, extension, cc_args, [*postargs, *SETS[Path(src).name]], pp_opts)

            self.compiler._compile = with_its_set
            super().build_extension(ext)
        except Exception as error:
            if os.environ.get("ILK_REQUIRE_NATIVE"):
                raise
            self.warn(f"ilk's native kernels were not built ({error}); PyTorch will be used for local training.")

    def copy_extensions_to_source(self) -> None:
        """Copy what was built; setuptools expects that everything was."""
        self.extensions = [
            e for e in self.extensions if Path(self.get_ext_fullpath(e.name)).exists() or _built(self, e)
        ]
        super().copy_extensions_to_source()


def _built(command: build_ext, ext: Extension) -> bool:
    return (Path(command.build_lib) / command.get_ext_filename(command.get_ext_fullname(ext.name))).exists()


sanitize = os.environ.get("ILK_SANITIZE", "")  # "address,undefined" or "thread": see `make sanitize`
sanitizer = [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g"] if sanitize else []
setup(
    ext_modules=[
        Extension(
            "ilk.native._kernel",
            [f"{KERNEL}/{name}" for name in SETS if X86 or not name.startswith("avx")],
            depends=[str(path) for pattern in ("*.h", "*.inc") for path in sorted(Path(KERNEL).glob(pattern))],
            define_macros=[("ILK_X86", "1")] if X86 else [],
            extra_compile_args=[*FLAGS, *sanitizer],
            extra_link_args=sanitizer,
            language="c++",
        )
    ],
    cmdclass={"build_ext": Build},
)
