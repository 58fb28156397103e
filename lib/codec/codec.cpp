#include "codec/codec.hpp"
