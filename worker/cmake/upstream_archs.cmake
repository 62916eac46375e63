# Upstream's tests/test-llama-archs.cpp, in two forms: as it stands (test-llama-archs), and as a generator of small models with
# more layers than upstream gives most of them (dgr-synth), so that a route has stages between head and tail. Neither is built
# unless asked for. Of upstream's common library only what the test needs is linked.
set(archs_source ${DGR_LLAMA_SOURCE}/tests/test-llama-archs.cpp)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${archs_source})
set(synth_source ${CMAKE_BINARY_DIR}/generated/dgr-synth.cpp)
file(READ ${archs_source} text)
string(REGEX MATCHALL "uint32_t n_layer = 2" found "${text}")
list(LENGTH found count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "upstream's generator sets the number of layers in ${count} places; teach upstream_archs.cmake its new form")
endif()
# Semicolons would be taken for list separators by any command that splits its arguments; CONFIGURE does not.
string(REPLACE "uint32_t n_layer = 2;" "uint32_t n_layer = 4;" text "${text}")
string(REPLACE "\"../src/" "\"" text "${text}")
file(GENERATE OUTPUT ${synth_source} CONTENT "${text}")

add_library(dgr_upstream_common OBJECT EXCLUDE_FROM_ALL
  ${DGR_LLAMA_SOURCE}/common/common.cpp ${DGR_LLAMA_SOURCE}/common/json.cpp ${DGR_LLAMA_SOURCE}/common/log.cpp)
add_executable(test-llama-archs EXCLUDE_FROM_ALL ${archs_source})
add_executable(dgr-synth EXCLUDE_FROM_ALL ${synth_source})
foreach(target dgr_upstream_common test-llama-archs dgr-synth)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 17)
  target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
  target_include_directories(${target} PRIVATE
    ${DGR_LLAMA_SOURCE}/common ${DGR_LLAMA_SOURCE}/src ${DGR_LLAMA_SOURCE}/vendor)
  target_link_libraries(${target} PRIVATE llama)
endforeach()
foreach(program test-llama-archs dgr-synth)
  target_link_libraries(${program} PRIVATE dgr_upstream_common Threads::Threads)
  # The rest of common.cpp needs libraries that are not built.
  target_link_options(${program} PRIVATE -Wl,--gc-sections)
endforeach()
