// Hello is the only file of the image that tests and demonstrations run: it
// says hello from its image, whose name is its first argument.
package main

import (
	"fmt"
	"os"
)

func main() {
	name := "an image without a name"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	fmt.Println("hello from", name)
}
