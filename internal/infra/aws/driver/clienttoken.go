// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"crypto/sha256"
	"encoding/hex"
)

// clientToken returns the client token of one resource in this run. AWS answers a call that is
// repeated with the same token as it answered the first call, and does not create a second
// resource. Other runs have other tokens, because AWS remembers a token for longer than the
// resource may exist.
func (c *Cloud) clientToken(addr string) string {
	sum := sha256.Sum256([]byte(c.runID + "\x00" + c.scope.Cluster + "\x00" + addr))
	const length = 32 // of at most 64
	return hex.EncodeToString(sum[:])[:length]
}
