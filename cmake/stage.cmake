# A stage is one folder under src/ and one library target. Its headers are reached as "<stage>/x.h" through a
# link in the build tree that only this target and those that link it have on their include path, so an include
# against the direction of the pipeline does not compile.
#
# stage(NAME sources... DEPENDS stages... PUBLIC libraries... PRIVATE libraries...)
function(stage name)
  cmake_parse_arguments(arg "" "" "DEPENDS;PUBLIC;PRIVATE" ${ARGN})
  set(include_root ${CMAKE_BINARY_DIR}/stages/${name})
  file(MAKE_DIRECTORY ${include_root})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${include_root}/${name} SYMBOLIC)
  add_library(tlbscope_${name} STATIC ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(tlbscope_${name} PUBLIC ${include_root})
  list(TRANSFORM arg_DEPENDS PREPEND tlbscope_)
  target_link_libraries(tlbscope_${name} PUBLIC ${arg_DEPENDS} ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} tlbscope_flags)
endfunction()

add_library(tlbscope_flags INTERFACE)
target_compile_options(tlbscope_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wno-missing-field-initializers)
# What runs once per command (option parsing, reports) or once per test is compiled for a quick build where
# TLBSCOPE_QUICK says so: GCC takes 5 s instead of 8 for a file that includes CLI11. The stages below stay as released.
add_library(tlbscope_quick INTERFACE)
if(TLBSCOPE_QUICK)
  target_compile_options(tlbscope_quick INTERFACE -Og)
endif()
if(TLBSCOPE_SANITIZE)
  add_compile_options(-fsanitize=${TLBSCOPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TLBSCOPE_SANITIZE})
endif()
