// SPDX-License-Identifier: Apache-2.0

package imds_test

import (
	"io"
	"net/http/httptest"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// The AWS SDK's client determines whether responses are correct.
func TestSDKReadsMetadata(t *testing.T) {
	b := newBench(t)
	b.source.values["dynamic/instance-identity/document"] = `{"instanceId":"i-05","region":"us-east-1"}`
	b.source.values["user-data"] = "#!/bin/sh\n"
	srv := httptest.NewServer(b.handler)
	defer srv.Close()
	client := sdk.New(sdk.Options{Endpoint: srv.URL})
	region, err := client.GetRegion(t.Context(), nil)
	if err != nil || region.Region != "us-east-1" {
		t.Errorf("region: %v, %v", region, err)
	}
	id, err := client.GetMetadata(t.Context(), &sdk.GetMetadataInput{Path: "instance-id"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(id.Content); string(got) != "i-05" {
		t.Errorf("instance id: %q, %v", got, err)
	}
	data, err := client.GetUserData(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(data.Content); string(got) != "#!/bin/sh\n" {
		t.Errorf("user data: %q, %v", got, err)
	}
}
