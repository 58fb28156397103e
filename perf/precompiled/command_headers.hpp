// The headers that take longest to compile in files that include CLI11, precompiled. A
// file still includes what it needs: with -Db_pch=false it is built without this file.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
