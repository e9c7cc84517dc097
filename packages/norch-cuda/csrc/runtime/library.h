// Libraries of NVIDIA's that are opened when something first needs them.
#pragma once

#include <functional>
#include <string>
#include <type_traits>

namespace norch {

/// The path of a library by its short name ("cublasLt"), or nothing if the system's search is to be tried. Set by Python.
extern std::function<std::string(const char*)> find_library;

/// An open library. It is never closed.
class Library {
public:
    /// Throws where `file` ("libcublasLt.so.13") cannot be opened; `needs` says what for, `package` what pip installs.
    Library(const char* name, const char* file, const char* needs, const char* package);

    template <class Function>
    void get(Function& function, const char* name) const {
        function = reinterpret_cast<std::remove_reference_t<Function>>(symbol(name));
    }

private:
    void* symbol(const char* name) const;
    void* handle_;
    const char* file_;
};

}  // namespace norch
