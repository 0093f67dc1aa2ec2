// SPDX-License-Identifier: Apache-2.0

// Package v20170312 is a stub of the Tencent VPC SDK, whose module is too large for some Go module
// proxies. flannel's tencent-vpc backend compiles against it and gets an error from every call:
// Slipway runs flannel on AWS only.
package v20170312

import "errors"

// errAbsent is the error of every call.
var errAbsent = errors.New("this flannel is built without the Tencent VPC SDK")

// Filter, Route and RouteTable have the fields that flannel uses.
type (
	Filter struct {
		Name   *string
		Values []*string
	}

	Route struct {
		RouteId              *uint64
		DestinationCidrBlock *string
		GatewayType          *string
		GatewayId            *string
		RouteType            *string
		Enabled              *bool
	}

	RouteTable struct {
		RouteTableId *string
		RouteSet     []*Route
	}
)

// The requests and responses have the fields that flannel uses.
type (
	DescribeRouteTablesRequest  struct{ Filters []*Filter }
	DescribeRouteTablesResponse struct {
		Response *struct{ RouteTableSet []*RouteTable }
	}

	CreateRoutesRequest struct {
		RouteTableId *string
		Routes       []*Route
	}

	CreateRoutesResponse struct{}
	DeleteRoutesRequest  struct {
		RouteTableId *string
		Routes       []*Route
	}

	DeleteRoutesResponse struct{}
)

// NewDescribeRouteTablesRequest returns an empty request.
func NewDescribeRouteTablesRequest() *DescribeRouteTablesRequest {
	return &DescribeRouteTablesRequest{}
}

// NewCreateRoutesRequest returns an empty request.
func NewCreateRoutesRequest() *CreateRoutesRequest { return &CreateRoutesRequest{} }

// NewDeleteRoutesRequest returns an empty request.
func NewDeleteRoutesRequest() *DeleteRoutesRequest { return &DeleteRoutesRequest{} }

// Client fails every call.
type Client struct{}

// NewClientWithSecretId returns a client. It does not fail because flannel ignores the error; the
// calls do.
func NewClientWithSecretId(_, _, _ string) (*Client, error) { return &Client{}, nil }

// DescribeRouteTables returns an error.
func (*Client) DescribeRouteTables(*DescribeRouteTablesRequest) (*DescribeRouteTablesResponse, error) {
	return nil, errAbsent
}

// CreateRoutes returns an error.
func (*Client) CreateRoutes(*CreateRoutesRequest) (*CreateRoutesResponse, error) {
	return nil, errAbsent
}

// DeleteRoutes returns an error.
func (*Client) DeleteRoutes(*DeleteRoutesRequest) (*DeleteRoutesResponse, error) {
	return nil, errAbsent
}
