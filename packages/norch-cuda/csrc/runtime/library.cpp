#include "runtime/library.h"

#include <dlfcn.h>

#include <stdexcept>

namespace norch {

std::function<std::string(const char*)> find_library;

Library::Library(const char* name, const char* file, const char* needs, const char* package) : file_(file) {
    const std::string path = find_library ? find_library(name) : "";
    handle_ = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) handle_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle_) return;
    const char* reason = dlerror();
    throw std::runtime_error(std::string(file) + ", which " + needs + " need, cannot be loaded: " +
                             (reason ? reason : "no reason given") + "; `pip install " + package + "` has it");
}

void* Library::symbol(const char* name) const {
    if (void* found = dlsym(handle_, name)) return found;
    throw std::runtime_error(std::string(file_) + " has no " + name);
}

}  // namespace norch
