// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"errors"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// TestNotFoundHasTheCodeOfItsPrefix: the code depends on the type of resource that the id is of, whatever follows the prefix.
func TestNotFoundHasTheCodeOfItsPrefix(t *testing.T) {
	for id, want := range map[string]string{
		"vpc-0123456789abcdef0":            "InvalidVpcID.NotFound",
		"vpc-not-there":                    "InvalidVpcID.NotFound",
		"vpc-cidr-assoc-0123456789abcdef0": "InvalidVpcCidrBlockAssociationID.NotFound",
		"eni-attach-0123456789abcdef0":     "InvalidAttachmentID.NotFound",
		"lt-0123456789abcdef0":             "InvalidLaunchTemplateId.NotFound",
		"other-1":                          "InvalidID",
		"":                                 "InvalidID",
	} {
		if err, ok := errors.AsType[*wire.Error](notFound(id)); !ok || err.Code != want {
			t.Errorf("%s: %v, want %s", id, err, want)
		}
	}
}
