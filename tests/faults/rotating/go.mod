module rotating

go 1.24

require gopkg.in/natefinch/lumberjack.v2 v2.2.1
