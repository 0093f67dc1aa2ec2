// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"crypto/sha256"
	"encoding/hex"
)

// clientToken is the client token of one resource in this run: AWS answers a call that comes again with the same token as it
// did the first time, instead of making a second thing. Other runs have other tokens, since AWS remembers a token
// longer than what was made may live.
func (c *Cloud) clientToken(addr string) string {
	sum := sha256.Sum256([]byte(c.runID + "\x00" + c.scope.Cluster + "\x00" + addr))
	const length = 32 // of at most 64
	return hex.EncodeToString(sum[:])[:length]
}
