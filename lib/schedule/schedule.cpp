#include "schedule/schedule.hpp"
