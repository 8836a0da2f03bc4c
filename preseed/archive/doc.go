// Package archive reads image archives by their index: which images there are,
// under which names, and where each blob lies. It decides nothing: which name
// is good, which platform is wanted, and whether a blob has the digest that it
// is claimed to have, is for the caller to say.
package archive

import "strconv"

// quote makes a name from an archive fit to be shown.
func quote(name string) string { return strconv.QuoteToGraphic(name) }
