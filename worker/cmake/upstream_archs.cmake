# Upstream's tests/test-llama-archs.cpp in two forms. test-llama-archs has two changes: one thread instead of four, because four
# that spin at every barrier take for ever on fewer processors; and it ends only when its log is written, because upstream logs
# from a thread that nobody waits for, and on a busy machine the last lines are lost. dgr-synth is the same program as a generator
# of small models: it gives them more layers than upstream gives most of them, so that a route has stages between head and tail.
# Neither is built unless somebody asks for it. Of upstream's common library only what the test needs is linked.
set(archs_source ${DGR_LLAMA_SOURCE}/tests/test-llama-archs.cpp)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${archs_source})

# Replaces `old` by `new` in the variable `text`, where it must stand once.
function(replace_once old new)
  string(FIND "${text}" "${old}" first)
  string(FIND "${text}" "${old}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "'${old}' does not stand once in ${archs_source}; teach upstream_archs.cmake its new form")
  endif()
  string(REPLACE "${old}" "${new}" replaced "${text}")
  set(text "${replaced}" PARENT_SCOPE)
endfunction()

file(READ ${archs_source} text)
replace_once("ctx_params.n_threads = 4" "ctx_params.n_threads = 1")
replace_once("ctx_params.n_threads_batch = 4" "ctx_params.n_threads_batch = 1")
string(REPLACE "\"../src/" "\"" text "${text}")
replace_once("int main(int argc, char ** argv) {" "static int upstream_main(int argc, char ** argv) {")
string(APPEND text "
int main(int argc, char ** argv) {
    const int code = upstream_main(argc, argv);
    common_log_pause(common_log_main());  // writes what is queued and joins the thread
    return code;
}
")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/generated/test-llama-archs.cpp CONTENT "${text}")
replace_once("uint32_t n_layer = 2" "uint32_t n_layer = 4")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/generated/dgr-synth.cpp CONTENT "${text}")

add_library(dgr_upstream_common OBJECT EXCLUDE_FROM_ALL
  ${DGR_LLAMA_SOURCE}/common/common.cpp ${DGR_LLAMA_SOURCE}/common/json.cpp ${DGR_LLAMA_SOURCE}/common/log.cpp)
foreach(program test-llama-archs dgr-synth)
  add_executable(${program} EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/generated/${program}.cpp)
  target_link_libraries(${program} PRIVATE dgr_upstream_common Threads::Threads)
  # The rest of common.cpp needs libraries that are not built.
  target_link_options(${program} PRIVATE -Wl,--gc-sections)
endforeach()
foreach(target dgr_upstream_common test-llama-archs dgr-synth)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 17)
  target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
  target_include_directories(${target} PRIVATE
    ${DGR_LLAMA_SOURCE}/common ${DGR_LLAMA_SOURCE}/src ${DGR_LLAMA_SOURCE}/vendor)
  target_link_libraries(${target} PRIVATE llama)
endforeach()
