// SPDX-License-Identifier: Apache-2.0

// Command terraform-provider-aws is a stand-in for Terraform's AWS provider: its schema is read from the file that
// SLIPWAY_TERRAFORM_SCHEMA names, and it makes nothing. It knows AWS's names and types, not AWS's behaviour, so it
// judges whether a configuration is accepted, planned, and stable when it is planned again.
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
			return provider{schemas: schemas}
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
