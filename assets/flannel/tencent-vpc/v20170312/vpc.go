// SPDX-License-Identifier: Apache-2.0

// Package v20170312 stands in for the Tencent VPC SDK, whose module is too large for some Go module proxies to carry.
// flannel's tencent-vpc backend compiles against it and gets an error from every call: Slipway runs flannel on AWS only.
package v20170312

import "errors"

// errAbsent is what every call answers.
var errAbsent = errors.New("this flannel is built without the Tencent VPC SDK")

// Filter, Route and RouteTable have the fields that flannel touches.
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

// The requests and responses have the fields that flannel touches.
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

// NewDescribeRouteTablesRequest makes an empty request.
func NewDescribeRouteTablesRequest() *DescribeRouteTablesRequest {
	return &DescribeRouteTablesRequest{}
}

// NewCreateRoutesRequest makes an empty request.
func NewCreateRoutesRequest() *CreateRoutesRequest { return &CreateRoutesRequest{} }

// NewDeleteRoutesRequest makes an empty request.
func NewDeleteRoutesRequest() *DeleteRoutesRequest { return &DeleteRoutesRequest{} }

// Client answers every call with an error.
type Client struct{}

// NewClientWithSecretId makes a client; flannel drops the error, so it is left to the calls.
func NewClientWithSecretId(_, _, _ string) (*Client, error) { return &Client{}, nil }

// DescribeRouteTables answers with an error.
func (*Client) DescribeRouteTables(*DescribeRouteTablesRequest) (*DescribeRouteTablesResponse, error) {
	return nil, errAbsent
}

// CreateRoutes answers with an error.
func (*Client) CreateRoutes(*CreateRoutesRequest) (*CreateRoutesResponse, error) {
	return nil, errAbsent
}

// DeleteRoutes answers with an error.
func (*Client) DeleteRoutes(*DeleteRoutesRequest) (*DeleteRoutesResponse, error) {
	return nil, errAbsent
}
