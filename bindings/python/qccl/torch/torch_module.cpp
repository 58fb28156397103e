// The Python module: the options, the process group, and its creation. Python's lock is released
// while a group is made or closed.
#include "torch_backend.hpp"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

using qccl_torch::Milliseconds;
using qccl_torch::QcclBackend;
using qccl_torch::QcclOptions;

namespace {

// Options(codec="int4", ...): each argument is an attribute.
c10::intrusive_ptr<QcclOptions> make_options(const py::kwargs &attributes) {
    auto options = c10::make_intrusive<QcclOptions>();
    const py::object own = py::cast(options);
    for (const auto &[name, value] : attributes) {
        if (!py::hasattr(own, name))
            throw py::type_error("Options has no argument " + py::repr(name).cast<std::string>());
        py::setattr(own, name, value);
    }
    return options;
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    py::module_::import("torch.distributed"); // has the base classes

    py::class_<QcclOptions, c10d::Backend::Options, c10::intrusive_ptr<QcclOptions>>(module,
                                                                                     "Options")
        .def(py::init(&make_options))
        .def("__copy__",
             [](const QcclOptions &given) { return c10::make_intrusive<QcclOptions>(given); })
        .def_readwrite("codec", &QcclOptions::codec)
        .def_readwrite("algorithm", &QcclOptions::algorithm)
        .def_readwrite("name", &QcclOptions::name)
        .def_readwrite("reproducible", &QcclOptions::reproducible);

    py::class_<QcclBackend, c10d::Backend, c10::intrusive_ptr<QcclBackend>>(module,
                                                                            "ProcessGroupQccl")
        .def(py::init([](const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                         const c10::intrusive_ptr<QcclOptions> &options) {
                 return c10::make_intrusive<QcclBackend>(store, rank, size, options);
             }),
             py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"),
             py::call_guard<py::gil_scoped_release>());

    module.def(
        "close_all",
        [](double seconds) {
            QcclBackend::close_all(Milliseconds(static_cast<int64_t>(seconds * 1000)));
        },
        py::arg("patience"), py::call_guard<py::gil_scoped_release>());
}
