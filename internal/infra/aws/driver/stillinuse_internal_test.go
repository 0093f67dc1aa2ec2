// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// usedAddress refuses to release an address.
type usedAddress struct {
	addressAPI
	err smithy.GenericAPIError
}

func (u usedAddress) ReleaseAddress(
	context.Context, *ec2.ReleaseAddressInput, ...func(*ec2.Options),
) (*ec2.ReleaseAddressOutput, error) {
	return nil, &u.err
}

// deletionClass returns the class of the error with which a resource is deleted.
func deletionClass(t *testing.T, c *Cloud, r graph.Resource) plan.ErrorClass {
	t.Helper()
	err := c.Delete(t.Context(), plan.Task{
		Step:          plan.Step{Kind: r.Kind().Name},
		Actual:        plan.ActualResource{ID: "x", Resource: r},
		ReportWaiting: func(string) {},
	})
	if err == nil {
		t.Fatalf("%s: deleted", r.Kind().Name)
	}

	return plan.ErrorClassOf(err)
}

// TestAddressOfADeletedGateway: EC2 shows an address as that of its NAT gateway for a while after the gateway's deletion.
func TestAddressOfADeletedGateway(t *testing.T) {
	for _, tc := range []struct {
		code, message string
		want          plan.ErrorClass
	}{
		{"AuthFailure", "You do not have permission to access the specified resource.", plan.NotReady},
		{"InvalidIPAddress.InUse", "Address 198.51.100.1 is in use.", plan.NotReady},
		{"AuthFailure", "AWS was not able to validate the provided access credentials", plan.AccessDenied},
		{"UnauthorizedOperation", "You are not authorized to perform this operation.", plan.AccessDenied},
	} {
		c := &Cloud{kinds: map[string]untypedDriver{}}
		api := usedAddress{err: smithy.GenericAPIError{Code: tc.code, Message: tc.message}}
		registerAddresses(c, api, Scope{})
		if class := deletionClass(t, c, awskind.EIP{}); class != tc.want {
			t.Errorf("%s (%s): class %q, want %q", tc.code, tc.message, class, tc.want)
		}
	}
}

// usedRole and the types after it refuse to delete what something uses.
type usedRole struct{ roleAPI }

func (usedRole) DeleteRole(
	context.Context, *iam.DeleteRoleInput, ...func(*iam.Options),
) (*iam.DeleteRoleOutput, error) {
	return nil, &smithy.GenericAPIError{Code: "DeleteConflict", Message: "must delete policies first"}
}

type usedProfile struct{ profileAPI }

func (usedProfile) DeleteInstanceProfile(
	context.Context, *iam.DeleteInstanceProfileInput, ...func(*iam.Options),
) (*iam.DeleteInstanceProfileOutput, error) {
	return nil, &smithy.GenericAPIError{Code: "DeleteConflict", Message: "must remove roles from instance profile first"}
}

type usedGateway struct{ gatewayAPI }

func (usedGateway) DeleteInternetGateway(
	context.Context, *ec2.DeleteInternetGatewayInput, ...func(*ec2.Options),
) (*ec2.DeleteInternetGatewayOutput, error) {
	return nil, dependencyViolation()
}

type usedTable struct{ routeTableAPI }

func (usedTable) DeleteRouteTable(
	context.Context, *ec2.DeleteRouteTableInput, ...func(*ec2.Options),
) (*ec2.DeleteRouteTableOutput, error) {
	return nil, dependencyViolation()
}

func (usedTable) DescribeRouteTables(
	context.Context, *ec2.DescribeRouteTablesInput, ...func(*ec2.Options),
) (*ec2.DescribeRouteTablesOutput, error) {
	return &ec2.DescribeRouteTablesOutput{}, nil
}

func dependencyViolation() error {
	return &smithy.GenericAPIError{Code: "DependencyViolation", Message: "x has dependencies and cannot be deleted."}
}

// TestDeletionsWaitWhileInUse: what used the resource was deleted before it, and AWS may still show that for a while.
func TestDeletionsWaitWhileInUse(t *testing.T) {
	c := &Cloud{kinds: map[string]untypedDriver{}}
	registerRoles(c, usedRole{}, nil, Scope{})
	registerInstanceProfiles(c, usedProfile{})
	registerInternetGateways(c, usedGateway{}, Scope{})
	registerRouteTables(c, usedTable{}, Scope{})

	for _, r := range []graph.Resource{
		awskind.IAMRole{}, awskind.InstanceProfile{}, awskind.InternetGateway{}, awskind.RouteTable{},
	} {
		if class := deletionClass(t, c, r); class != plan.NotReady {
			t.Errorf("%s: class %q is not repeated", r.Kind().Name, class)
		}
	}
}
