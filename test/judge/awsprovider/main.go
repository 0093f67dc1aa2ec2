// SPDX-License-Identifier: Apache-2.0

// Command terraform-provider-aws is a stand-in for Terraform's AWS provider. It reads the
// provider's schema from the file in SLIPWAY_TERRAFORM_SCHEMA, and creates nothing. It knows the
// names and types of AWS, but not the behaviour. A test with it shows whether Terraform accepts a
// configuration, can plan it, and plans no change when it plans again.
package main

import (
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
)

func main() {
	schemas, err := readSchemas(os.Getenv("SLIPWAY_TERRAFORM_SCHEMA"))
	if err == nil {
		err = tf5server.Serve("registry.terraform.io/hashicorp/aws", func() tfprotov5.ProviderServer {
			return provider{schemas: schemas, lost: new(string)}
		})
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
