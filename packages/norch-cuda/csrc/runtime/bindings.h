// What the parts of the extension module share.
#pragma once

#include <nanobind/nanobind.h>

#include "common/buffer.h"

namespace norch {

/// `size` bytes at `offset` of a buffer; throws where they do not lie in it.
Buffer* range_of(nanobind::handle object, Py_ssize_t offset, Py_ssize_t size);

namespace distributed {
void add_nccl(nanobind::module_& module);
}

}  // namespace norch
