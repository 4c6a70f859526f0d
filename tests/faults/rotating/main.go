// Rotating writes the lines of its input to a log by lumberjack. A line "rotate" rotates instead,
// and is answered by one of the same word.
package main

import (
	"bufio"
	"fmt"
	"os"

	"gopkg.in/natefinch/lumberjack.v2"
)

func main() {
	log := &lumberjack.Logger{Filename: os.Args[1], Compress: len(os.Args) > 2, MaxSize: 100}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var err error
		switch line := lines.Text(); line {
		case "rotate":
			err = log.Rotate()
			fmt.Println(line)
		default:
			_, err = log.Write([]byte(line + "\n"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
