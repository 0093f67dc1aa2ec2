// SPDX-License-Identifier: Apache-2.0

// Package referencedata holds facts about AWS, Terraform and Kubernetes releases that tests compare Slipway with:
// schemas of CloudFormation resource types, schemas of the Terraform provider for AWS, and SHA-256 hashes of upstream
// release files. Each file in data/ names its source and date in its first lines.
//
// Nothing in the product reads this package. Only tests import it.
package referencedata

import (
	"embed"
	"encoding/json"
	"testing"
)

// The names of the files in data/.
const (
	// CloudFormationTypes has the properties of CloudFormation resource types, as cfn-lint ships them.
	CloudFormationTypes = "cloudformation-types.json"
	// TerraformProvider has the resource schemas of the Terraform provider for AWS, version 6.25.
	TerraformProvider = "terraform-aws-6.25.json"
	// AssetHashes has the SHA-256 hashes of upstream release files, as kops and kubespray publish them.
	AssetHashes = "asset-hashes.yaml"
)

//go:embed data
var files embed.FS

// Read returns the content of a file of data/.
func Read(tb testing.TB, name string) []byte {
	tb.Helper()

	content, err := files.ReadFile("data/" + name)
	if err != nil {
		tb.Fatal(err)
	}

	return content
}

// ReadJSON decodes a JSON file of data/ into v.
func ReadJSON(tb testing.TB, name string, v any) {
	tb.Helper()

	if err := json.Unmarshal(Read(tb, name), v); err != nil {
		tb.Fatalf("decode %s: %v", name, err)
	}
}
