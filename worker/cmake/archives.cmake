# The libraries that the programs use are linked in: a program's digest then covers all the code that runs in it but the system's C
# library, it starts where no such libraries are installed, and of their pages only those it needs take memory. What the system has
# no archive of stays shared.

# `shared` (a library's path) or its archive beside it, into `result`.
function(archive_of shared result)
  string(REGEX REPLACE "\\.so(\\.[0-9.]+)?$" ".a" archive "${shared}")
  if(NOT EXISTS "${archive}")
    set(archive "${shared}")
  endif()
  set(${result} "${archive}" PARENT_SCOPE)
endfunction()

# The same for linker flags: each -lNAME that has an archive becomes its path.
function(archives_of flags result)
  set(replaced "")
  foreach(flag ${flags})
    if(flag MATCHES "^-l(.+)$")
      find_library(ARCHIVE_${CMAKE_MATCH_1} NAMES lib${CMAKE_MATCH_1}.a)
      if(ARCHIVE_${CMAKE_MATCH_1})
        set(flag "${ARCHIVE_${CMAKE_MATCH_1}}")
      endif()
    endif()
    list(APPEND replaced "${flag}")
  endforeach()
  set(${result} "${replaced}" PARENT_SCOPE)
endfunction()

# Every library that was found so far.
function(link_archives)
  get_property(targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  foreach(target ${targets})
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    set(properties IMPORTED_LOCATION)
    if(configurations)
      list(TRANSFORM configurations PREPEND IMPORTED_LOCATION_ OUTPUT_VARIABLE located)
      list(APPEND properties ${located})
    endif()
    foreach(property ${properties})
      get_target_property(location ${target} ${property})
      if(location)
        archive_of("${location}" archive)
        set_target_properties(${target} PROPERTIES ${property} "${archive}")
      endif()
    endforeach()
  endforeach()
  # What pkg-config knows is named by flags: Debian's re2, and the Abseil that it brings where it is a newer one. Two copies of one
  # library, an archive and a shared one, must not meet in a program.
  if(TARGET re2::re2)
    get_target_property(links re2::re2 INTERFACE_LINK_LIBRARIES)
    if(links)
      archives_of("${links}" links)
      set_target_properties(re2::re2 PROPERTIES INTERFACE_LINK_LIBRARIES "${links}")
    endif()
  endif()
endfunction()
